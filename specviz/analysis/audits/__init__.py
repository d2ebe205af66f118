"""Other people's figures: what they imply, and whether they can all be true."""
