"""One file per socket door: join, frames in, frames out."""
