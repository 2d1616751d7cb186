"""The call: the caller's arrays against parameters, launches, and how long they take."""
