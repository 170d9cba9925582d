"""Hearts that stream: simulated electrocardiograms, their beats, their rate, and beats that come too early."""
