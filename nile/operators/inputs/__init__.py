"""From streams to the input of an operator: read, encode, merge, price.  Imports the operators and `nile.streams`."""
