"""The console in Chromium with a long job: how soon it paints, how much it loads."""
