//! The help of a message about two keys with one name.

use super::{Advice, Advisor, Edit, Guess, Side, patterns};
use crate::pattern::shape::Shape;
use crate::pattern::{Part, Pattern, Placeholder};

impl Advisor<'_> {
    /// One name has two keys: the shapes that make them one, if only shapes differ.
    pub(super) fn for_name(&self) -> Advice {
        let (here, there) = (self.here, self.there);
        let Some((one, other)) = patterns(here, there) else {
            return Advice::of("a name is one lock: write the same key at both, or another name");
        };
        if one.same_form(other) {
            return Advice::of(
                "a name is one lock: write the same `derivation` at both, or another name",
            );
        }
        let Some(shapes) = common_shapes(here, there) else {
            return Advice::of(
                "a name is one lock, so shapes and filters must be the same: write the same key at both, or another name",
            );
        };
        let mut edits = Vec::new();
        let mut parts = Vec::new();
        for (is_here, side, pattern) in [(true, here, one), (false, there, other)] {
            let is_right = |(placeholder, shape): (&Placeholder, &Shape)| {
                placeholder.shape.as_ref() == Some(shape)
            };
            if pattern.placeholders().zip(&shapes).all(is_right) {
                continue;
            }
            let key = side.key_of(&with_shapes(pattern, &shapes));
            parts.push(if is_here {
                format!("write `{key}` here")
            } else {
                format!("write `{key}` at {}", side.item)
            });
            edits.push(Edit::key(is_here, key));
        }
        if !self.solves(&edits) {
            return Advice::of(
                "a name is one lock, so shapes must be the same: write them at every site of this name, or another name",
            );
        }
        Advice {
            text: format!(
                "a name is one lock, so shapes must be the same: {}",
                parts.join(", and ")
            ),
            options: vec![edits],
        }
    }
}

/// The shapes that both patterns can have, if they have equal texts and filters.
fn common_shapes(here: &Side<'_>, there: &Side<'_>) -> Option<Vec<Shape>> {
    let (one, other) = patterns(here, there)?;
    if one.parts.len() != other.parts.len() {
        return None;
    }
    let mut shapes = Vec::new();
    for pair in one.parts.iter().zip(&other.parts) {
        match pair {
            (Part::Text(a), Part::Text(b)) if a == b => {}
            (Part::Placeholder(a), Part::Placeholder(b)) if a.filters == b.filters => {
                shapes.push(common_shape(here, a, there, b)?);
            }
            _ => return None,
        }
    }
    Some(shapes)
}

/// The one of the two shapes that values of both have.
fn common_shape(
    here: &Side<'_>,
    a: &Placeholder,
    there: &Side<'_>,
    b: &Placeholder,
) -> Option<Shape> {
    match (a.shape?, b.shape?) {
        (a, b) if a == b => Some(a),
        (Shape::Text, known) if here.is_guess(a) => Some(known),
        (known, Shape::Text) if there.is_guess(b) => Some(known),
        (Shape::Raw, _) | (_, Shape::Raw) => None,
        (Shape::Text, _) | (_, Shape::Text) => Some(Shape::Text),
        (Shape::Int, Shape::Uint) | (Shape::Uint, Shape::Int) => Some(Shape::Int),
        _ => None,
    }
}

impl Side<'_> {
    fn is_guess(&self, placeholder: &Placeholder) -> bool {
        let name = placeholder.name();
        // Without the type's name it can be a text that has no other shape; a lock's values have
        // one type, whichever macro renders them.
        let is_open = |guess: &&Guess| guess.ty.is_some() || self.word.is_none();
        let mut guesses = self.guesses.iter().filter(is_open);
        guesses.any(|guess| guess.source.trim().trim_end_matches('*') == name)
    }
}

fn with_shapes(pattern: &Pattern, shapes: &[Shape]) -> String {
    let mut pattern = pattern.clone();
    let mut shapes = shapes.iter();
    for part in &mut pattern.parts {
        if let Part::Placeholder(placeholder) = part {
            placeholder.shape = shapes.next().copied();
        }
    }
    pattern.to_string()
}
