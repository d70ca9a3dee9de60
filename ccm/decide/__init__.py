"""Pure decisions: no client, no clock, no log; `now` is a parameter."""
