//! Crashes in software: drive model and servers, write logs, crash states, crash images.
