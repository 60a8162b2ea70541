"""Learning: treebanks read, the relations that heads are taught, training and scoring of models."""
