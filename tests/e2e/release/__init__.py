"""What is published: packages, image and chart, and that their pages can be followed."""
