//! Puts a message together: the comment that names the lock, statements, and the columns of a `SELECT`.

use crate::{Request, Wait, query_comment};
use std::fmt::{Arguments, Write};

/// One simple-query message of several statements.
pub(super) struct Message {
    text: String,
    /// What separates the next column from what is there; a `SELECT` has begun.
    separator: &'static str,
}

impl Message {
    /// Begins with the comment that names the lock. The comment is a statement of its own, an empty one: in front of a utility
    /// statement it would be part of that statement's text, and so of its entry in `pg_stat_statements`.
    pub(super) fn new(request: &Request) -> Self {
        // With a budget there are three more columns.
        let mut text = String::with_capacity(match request.wait {
            Wait::Session | Wait::Never => 256,
            Wait::For(_) | Wait::Forever => 512,
        });
        if let Some(name) = &request.shown_name {
            query_comment::push(&mut text, name);
            text.push(';');
        }
        Self {
            text,
            separator: "",
        }
    }

    /// Begins without a name.
    pub(super) const fn empty() -> Self {
        Self {
            text: String::new(),
            separator: "",
        }
    }

    pub(super) fn statement(&mut self, statement: &str) {
        self.separate();
        self.text.push_str(statement);
    }

    /// Begins a `SELECT` with the columns that follow.
    pub(super) fn select(&mut self) {
        self.separate();
        self.separator = "SELECT ";
    }

    pub(super) fn column(&mut self, column: Arguments<'_>) {
        self.text
            .push_str(std::mem::replace(&mut self.separator, ","));
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = self.text.write_fmt(column);
    }

    fn separate(&mut self) {
        self.separator = "";
        if !matches!(self.text.bytes().last(), None | Some(b';')) {
            self.text.push(';');
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}
