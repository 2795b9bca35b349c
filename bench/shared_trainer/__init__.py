"""Jobs an hour of one trainer that several jobs share, beside the same jobs one after another."""
