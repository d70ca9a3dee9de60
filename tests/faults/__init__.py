"""What each fault does to each controller: declared beside the test that shows it."""
