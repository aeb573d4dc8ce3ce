"""What is run: experiments, and the way from one trial to a judged sweep."""
