"""The volume-label duty: tell the scheduler in which zones the cloud's volumes can be used."""
