"""What is judged from the histories and the states."""
