"""One web application: pages for people (``explorer``). Only this package imports a web framework."""
