"""The linter of prose: which pages and texts of the code it reads, and the rules of the house."""
