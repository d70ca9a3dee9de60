"""The volume-label controller: tell the scheduler in which zones the cloud's volumes are."""
