"""What is published, made and checked: packages, image and chart. No part of the product."""
