"""What a comparison found: counts, differences, a verdict, the page that shows them."""
