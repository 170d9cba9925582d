"""Ways to answer a join within CPU time that users pay, each with a forecast: above the operators, below answers.

Statistics come from one cheap look at raw keys; a forecast prices every way; the best one runs.
"""
