"""What the tests of the page share."""

from tests.page.browser import chromium

__all__ = ["chromium"]
