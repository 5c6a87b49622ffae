"""The pieces of a page: tables, matrices, pictures, as plain data that the templates beside this file write down."""
