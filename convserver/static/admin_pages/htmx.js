// The admin's policy lets no style sheet stand in a page, and nothing here shows an indicator.
htmx.config.includeIndicatorStyles = false;
