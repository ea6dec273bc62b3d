"""What tests build their problems from; fixtures are in the conftest.py of the folder that uses them."""
