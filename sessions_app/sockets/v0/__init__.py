"""The V0 door by Socket.IO."""
