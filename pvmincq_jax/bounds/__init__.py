"""Section 3 and what follows from it: inequalities between source, self-labelled and target risks.

- `domain`: theorem 1 and corollary 1
- `deviation`: section 3.3
- `moved`: the same for source points that are moved to the mean of their matches
- `pac_bayes`, `worst_pair`, `kl`: PAC-Bayes bounds for the majority vote
"""
