"""Theorem 1, section 3 and what follows from it: inequalities between source, self-labelled and target risks.

- `domain`: theorem 1 (equation 3, section 2.2) and corollary 1
- `deviation`: section 3.3, for matched pairs and for points moved to the mean of their matches
- `kl`, `pac_bayes`: PAC-Bayes bounds for the majority vote, and the divergences that they invert
- `self_bounds`: votes that minimise their own bound
"""
