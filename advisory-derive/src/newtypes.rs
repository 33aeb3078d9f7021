//! The shapes of newtypes with an earlier `#[derive(KeyPart)]`, which messages suggest.
//!
//! They only feed messages: a type is known here by its name alone, and only if its derive comes
//! before the lock site.

use advisory_pattern::Shape;
use std::sync::{Mutex, PoisonError};

/// Each type's name, and its shape unless two types of that name have different ones.
static SHAPES: Mutex<Vec<(String, Option<Shape>)>> = Mutex::new(Vec::new());

pub(crate) fn remember(name: String, shape: Option<Shape>) {
    let mut shapes = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
    match shapes.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) if *known != shape => *known = None,
        Some(_) => {}
        None => shapes.push((name, shape)),
    }
}

pub(crate) fn shape(name: &str) -> Option<Shape> {
    let shapes = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = shapes.iter().find(|(known, _)| known == name);
    known.and_then(|(_, shape)| *shape)
}

#[cfg(test)]
mod tests {
    use super::{Shape, remember, shape};

    #[test]
    fn two_types_of_one_name_have_no_shape() {
        let remember = |name: &str, shape| remember(name.to_owned(), Some(shape));
        remember("Room", Shape::Int);
        remember("Day", Shape::Date);
        remember("Room", Shape::Int);
        assert_eq!(shape("Room"), Some(Shape::Int));
        assert_eq!(shape("Day"), Some(Shape::Date));
        remember("Room", Shape::Uuid);
        assert_eq!(shape("Room"), None);
        assert_eq!(shape("Day"), Some(Shape::Date));
        assert_eq!(shape("Night"), None);
    }
}
