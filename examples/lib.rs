//! The examples of this workspace are its `[[example]]` targets, one file each.
