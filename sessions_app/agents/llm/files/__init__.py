"""What an agent does with the files of its conversation's workspace: it shows, edits and searches them."""
