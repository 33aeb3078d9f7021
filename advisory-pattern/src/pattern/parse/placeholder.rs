//! Parsing of the text between `<` and `>` into a placeholder.
//!
//! A path, then `*` for a slice, then `: shape`, then `|filter`s. Each piece is read independently,
//! so that a mistake in one does not hide a mistake in another.

use super::error::{Errors, short, unknown};
use super::path;
use crate::pattern::shape::Shape;
use crate::pattern::suggest::closest;
use crate::pattern::{Filter, Placeholder};

pub(super) struct PlaceholderReader<'a> {
    pub(super) errors: Errors<'a>,
    has_slice: bool,
}

impl<'a> PlaceholderReader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            errors: Errors::new(text),
            has_slice: false,
        }
    }

    /// `whole` includes the `<` and `>` around `source`.
    pub(super) fn read(&mut self, whole: &'a str, source: &'a str) -> Option<Placeholder> {
        if source.trim().is_empty() {
            self.names_nothing(whole);
            return None;
        }
        if source.contains("::") {
            self.not_a_path(source.trim());
            return None;
        }
        let (head, filters) = match source.split_once('|') {
            Some((head, filters)) => (head, Some(filters)),
            None => (source, None),
        };
        let (path, shape) = match head.split_once(':') {
            Some((path, shape)) => (path.trim(), Some(shape)),
            None => (head.trim(), None),
        };
        let (path, slice) = match path.strip_suffix('*') {
            Some(path) => (path.trim_end(), true),
            None => (path, false),
        };
        let path = self.path(whole, path);
        if slice && self.has_slice {
            let message = "is a second slice: write at most one `*` in a key pattern";
            self.errors.about(whole, message);
        }
        self.has_slice |= slice;
        let shape = shape.and_then(|shape| self.shape(shape));
        let filters = filters.map_or_else(Vec::new, |filters| self.filters(filters, shape));
        Some(Placeholder {
            source: source.to_owned(),
            path: path?,
            shape,
            filters,
            slice,
        })
    }

    fn shape(&mut self, written: &'a str) -> Option<Shape> {
        let (first, second) = match written.split_once(':') {
            Some((first, second)) => (first.trim(), Some(second.trim())),
            None => (written.trim(), None),
        };
        if let Some(second) = second {
            let (first, second_short) = (short(first), short(second));
            let message = format!("the shape is given twice: write `{first}` or `{second_short}`");
            self.errors.at(second, message);
        }
        let shape = Shape::from_name(first);
        if shape.is_none() {
            let names = Shape::ALL.map(Shape::name);
            let meant = Shape::of_type(first).map(Shape::name);
            let meant = meant.or_else(|| closest(first, names));
            self.errors
                .at(first, unknown("shape", first, meant, &names));
        }
        shape
    }

    fn filters(&mut self, written: &'a str, shape: Option<Shape>) -> Vec<Filter> {
        let mut filters = Vec::new();
        for word in written.split('|').map(str::trim) {
            if let Some((_, shape)) = word.split_once(':') {
                let shape = shape.trim();
                let shape = short(shape);
                let message =
                    format!("`: {shape}` comes after a filter: write it before the first `|`");
                self.errors.at(word, message);
                continue;
            }
            let Some(filter) = Filter::from_name(word) else {
                let names = Filter::ALL.map(Filter::name);
                self.errors
                    .at(word, unknown("filter", word, closest(word, names), &names));
                continue;
            };
            if filters.contains(&filter) {
                self.errors.at(
                    word,
                    format!("filter `{word}` is given twice: write it once"),
                );
                continue;
            }
            if let Some(shape) = shape.filter(|&shape| !filter.takes(shape)) {
                self.errors.at(word, filter.refusal(shape));
            }
            filters.push(filter);
        }
        filters
    }

    fn path(&mut self, whole: &str, written: &'a str) -> Option<Vec<String>> {
        let path = path::read(written);
        if path.is_none() {
            if written.is_empty() {
                self.names_nothing(whole);
            } else if let Some(name) = written
                .strip_prefix('*')
                .filter(|&name| path::read(name).is_some())
            {
                self.errors.at(
                    written,
                    format!("`{written}` has its `*` in the wrong place: write `<{name}*>`"),
                );
            } else if let Some(keyword) = path::keyword(written) {
                self.errors.at(
                    written,
                    format!("`{keyword}` is a Rust keyword: write `r#{keyword}`"),
                );
            } else {
                self.not_a_path(written);
            }
        }
        path
    }

    fn names_nothing(&mut self, whole: &str) {
        let message = "is empty: write a parameter's name, such as `<tenant_id>`";
        self.errors.about(whole, message);
    }

    fn not_a_path(&mut self, written: &str) {
        let message = "is not a path: compute it in `with(name = …)` and write `<name>`";
        self.errors.about(written, message);
    }
}
