"""The provider of Azure, in its lab."""
