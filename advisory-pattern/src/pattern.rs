//! A key pattern and its parts.
//!
//! Text and placeholders, as `parse` reads them, and their canonical form. `shaped` makes two ways
//! to write a placeholder (white space, `|raw` or `: raw`, the order of filters) equal.

pub(crate) mod atom;
pub(crate) mod char_set;
pub mod escape;
pub(crate) mod key_space;
pub(crate) mod locked_key;
pub(crate) mod parse;
pub(crate) mod permit;
pub(crate) mod shape;
pub(crate) mod suggest;

use std::fmt;

use crate::pattern::shape::Shape;
use crate::words::words;

/// The parts of a key pattern, in order.
///
/// # Examples
///
/// ```
/// use advisory_pattern::{Shape, parse};
///
/// let pattern = parse("room:<id>:<day: date>")?;
/// let names: Vec<String> = pattern.placeholders().map(|placeholder| placeholder.name()).collect();
/// assert_eq!(names, ["id", "day"]);
/// // `id` is an integer, as its type says.
/// assert_eq!(pattern.shaped(|_| Shape::Int).to_string(), "room:<id: int>:<day: date>");
/// # Ok::<(), Vec<advisory_pattern::PatternError>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Text and placeholders; [`parse`](crate::parse()) never gives two texts in a row, or an empty
    /// one.
    pub parts: Vec<Part>,
}

/// One part of a key pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text that every key contains, with `<<` read as `<`.
    Text(String),
    /// The place of a value.
    Placeholder(Placeholder),
}

/// A placeholder: the text between `<` and `>`.
///
/// Comparing two placeholders ignores `source`.
#[derive(Clone, Debug)]
pub struct Placeholder {
    /// The text between `<` and `>` as it was written: `req.day: date|trim`.
    pub source: String,
    /// The path's names: `["req", "day"]`, `["id", "0"]`, `["self", "tenant"]`, raw identifiers as
    /// `r#type`.
    pub path: Vec<String>,
    /// The shape, if one is written.
    pub shape: Option<Shape>,
    /// The filters, in the order written.
    pub filters: Vec<Filter>,
    /// True if it takes a slice, `<ids*>`: a key for each element.
    pub slice: bool,
}

/// A change to a value before it is rendered.
///
/// Filters get the value itself, and escaping comes last, so the order of `trim` and `lower` does
/// not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filter {
    /// Takes the value's text from its `Display`.
    Display,
    /// Strips U+0020 from both ends, and nothing else.
    Trim,
    /// Writes A to Z in lower case, and nothing else.
    Lower,
    /// Leaves `%` and `:` as they are.
    Raw,
}

words! {
    Filter:
    Trim = "trim",
    Lower = "lower",
    Raw = "raw",
    Display = "display",
}

impl Filter {
    /// Returns `true` if the filter takes a value of this shape.
    ///
    /// `trim`, `lower` and `display` are for free text; `raw` also for a single character. With any
    /// other shape they are a mistake: they would have no effect, or the text would not have the
    /// shape.
    #[must_use]
    pub const fn takes(self, shape: Shape) -> bool {
        match self {
            Self::Trim | Self::Lower | Self::Display => shape.is_text(),
            Self::Raw => shape.is_text() || matches!(shape, Shape::Char),
        }
    }

    /// Returns the message for a value of a shape that the filter does not take.
    #[must_use]
    pub fn refusal(self, shape: Shape) -> String {
        let (filter, shape) = (self.name(), shape.name());
        format!("filter `{filter}` does not fit the shape `{shape}`: leave it out")
    }
}

impl Placeholder {
    /// Joins the path as a user writes it: `req.day`.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.join(".")
    }

    /// Returns the shape of the rendered text, after the filters. `shape_of` gives the value's
    /// shape if none is written.
    ///
    /// `raw` makes text and characters [`Shape::Raw`]; `display` without a written shape makes
    /// anything [`Shape::Text`].
    pub fn rendered_shape(&self, shape_of: impl Fn(&Self) -> Shape) -> Shape {
        let shape = self.value_shape(shape_of);
        if self.filters.contains(&Filter::Raw) && Filter::Raw.takes(shape) {
            return Shape::Raw;
        }
        shape
    }

    /// Returns the filters that do not take a value of the placeholder's shape, which `shape_of`
    /// gives if none is written.
    ///
    /// [`parse`](crate::parse()) refuses misfits of a written shape; this is for a shape that a
    /// type implies.
    pub fn misfits(&self, shape_of: impl Fn(&Self) -> Shape) -> Vec<Filter> {
        let shape = self.value_shape(shape_of);
        let misfits = self.filters.iter().copied();
        misfits.filter(|filter| !filter.takes(shape)).collect()
    }

    fn value_shape(&self, shape_of: impl Fn(&Self) -> Shape) -> Shape {
        match self.shape {
            Some(shape) => shape,
            None if self.filters.contains(&Filter::Display) => Shape::Text,
            None => shape_of(self),
        }
    }

    fn shaped(&self, shape_of: impl Fn(&Self) -> Shape) -> Self {
        let shape = self.rendered_shape(shape_of);
        let mut filters = self.filters.clone();
        filters.retain(|filter| *filter != Filter::Raw && filter.takes(shape));
        filters.sort_unstable();
        let mut shaped = Self {
            source: String::new(),
            path: self.path.clone(),
            shape: Some(shape),
            filters,
            slice: self.slice,
        };
        shaped.source = shaped.to_string();
        shaped
    }

    fn same_form(&self, other: &Self) -> bool {
        (self.shape, &self.filters) == (other.shape, &other.filters)
    }
}

impl PartialEq for Placeholder {
    fn eq(&self, other: &Self) -> bool {
        self.same_form(other) && self.path == other.path && self.slice == other.slice
    }
}

impl Eq for Placeholder {}

impl Pattern {
    /// Returns the pattern in canonical form: every placeholder has its shape, and filters are in
    /// one order and have an effect.
    ///
    /// `shape_of` is called for each placeholder without a written shape. The result has the
    /// language of the original, even after it is printed and parsed, so records store it.
    #[must_use]
    pub fn shaped(&self, shape_of: impl Fn(&Placeholder) -> Shape) -> Self {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => Part::Text(text.clone()),
            Part::Placeholder(placeholder) => Part::Placeholder(placeholder.shaped(&shape_of)),
        });
        Self {
            parts: parts.collect(),
        }
    }

    /// Returns `true` if two shaped patterns have equal text, shapes and filters.
    ///
    /// The names of placeholders do not matter, nor whether one takes a slice: `account:<from>` and
    /// `account:<ids*>` lock the same accounts.
    #[must_use]
    pub fn same_form(&self, other: &Self) -> bool {
        let same = |(a, b): (&Part, &Part)| match (a, b) {
            (Part::Text(a), Part::Text(b)) => a == b,
            (Part::Placeholder(a), Part::Placeholder(b)) => a.same_form(b),
            _ => false,
        };
        self.parts.len() == other.parts.len() && self.parts.iter().zip(&other.parts).all(same)
    }

    /// Returns the pattern with one name for all placeholders: equal for patterns of [one
    /// form](Self::same_form).
    #[must_use]
    pub fn without_names(&self) -> Self {
        let mut pattern = self.clone();
        for part in &mut pattern.parts {
            if let Part::Placeholder(placeholder) = part {
                placeholder.path = vec!["_".to_owned()];
                placeholder.slice = false;
            }
        }
        pattern
    }

    /// Returns the one text that a pattern without placeholders renders.
    #[must_use]
    pub fn constant(&self) -> Option<String> {
        let texts = self.parts.iter().map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Placeholder(_) => None,
        });
        texts.collect()
    }

    /// Returns the placeholders in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Placeholder(placeholder) => Some(placeholder),
        })
    }
}

/// Writes the pattern canonically: it parses back to an equal one.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(text) => f.write_str(&text.replace('<', "<<"))?,
                Part::Placeholder(placeholder) => write!(f, "<{placeholder}>")?,
            }
        }
        Ok(())
    }
}

/// Writes the text between `<` and `>`: `req.day: date|trim`.
impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        f.write_str(if self.slice { "*" } else { "" })?;
        if let Some(shape) = self.shape {
            write!(f, ": {}", shape.name())?;
        }
        for filter in &self.filters {
            write!(f, "|{}", filter.name())?;
        }
        Ok(())
    }
}
