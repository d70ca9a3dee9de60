"""What the tests of the page share."""

from tests.integration.status_page.browser import chromium

__all__ = ["chromium"]
