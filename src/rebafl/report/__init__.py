"""What came out of runs and measurements? Tables, pictures and the generated parts of the documentation."""
