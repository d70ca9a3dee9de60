"""The volume-label controller: label the cloud's volumes with their zones, for the scheduler."""
