"""Long runs, each with a script; tests here run a short profile of each."""
