"""A model behind a web page and an API: predictions while lessons are learned in a process of their own."""
