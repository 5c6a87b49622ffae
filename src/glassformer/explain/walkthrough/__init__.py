"""The steps of a walkthrough, as data that the terminal and the report draw."""
