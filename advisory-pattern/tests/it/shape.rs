//! Each shape's language contains exactly what the shape documents.

use advisory_pattern::escape::escape_into;
use advisory_pattern::{Language, Part, Pattern, Shape, overlap};
use proptest::prelude::*;

use crate::rows;

/// Returns whether the shape's language has the text.
fn renders(shape: Shape, text: &str) -> bool {
    let parts = vec![Part::Text(text.to_owned())];
    let text = Pattern { parts }.language(|_| shape);
    overlap(&text, &Language::of_parts([(None, shape.atoms())]))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    escape_into(&mut escaped, text).expect("a string takes every write");
    escaped
}

#[test]
fn each_shape_has_its_forms_and_no_others() {
    let cases = "
int => 0, 7, -7, -9223372036854775808 => , -, +7, --7, 7-, 1.5
uint => 0, 42 => , -1, +1, a
uuid => 6b1c8a8e-9f57-4b4e-8d3a-0c2f5e7d9a10 => , b1c8a8e-9f57-4b4e-8d3a-0c2f5e7d9a10, 6B1C8A8E-9F57-4B4E-8D3A-0C2F5E7D9A10, 6b1c8a8e9f574b4e8d3a0c2f5e7d9a10
date => 2025-01-15, +12345-01-01, -0001-12-31, +262142-12-31 => 2025-1-15, 20250115, 2025-01-15T, +1234567-01-01
time => 093000, 235960, 093000.5, 093000.123456789 => , 09:30:00, 0930, 093000., 0930001
datetime => 2025-01-15T093000, -0001-12-31T093000.25 => 2025-01-15 093000, 2025-01-15T093000Z, 2025-01-15
timestamp => 2025-01-15T093000Z, 2025-01-15T093000.25Z => 2025-01-15T093000, 2025-01-15T093000+01
bool => true, false => , tale, fruse, True, truefalse, 1
char => a, é, %25, %3A,  , 2 => , ab, :, %, %26, %2A, %25a, a%25
text => , a b, 日本, %25x%3A => a:b, :
";
    for [name, inside, outside] in rows(cases) {
        let shape = Shape::from_name(name).expect(name);
        for text in inside.split(", ") {
            assert!(renders(shape, text), "{shape:?} has {text:?}");
        }
        for text in outside.split(", ") {
            assert!(!renders(shape, text), "{shape:?} has not {text:?}");
        }
    }
    for text in ["", "a:b", "%", "é:"] {
        assert!(renders(Shape::Raw, text), "{text:?}");
    }
}

#[test]
fn no_shape_but_raw_has_a_colon() {
    for shape in Shape::ALL {
        let has_colon = shape.atoms().iter().any(|atom| atom.chars.contains(':'));
        assert_eq!(has_colon, shape == Shape::Raw, "{shape:?}");
    }
}

#[test]
fn names_lead_back_to_their_shapes() {
    for shape in Shape::ALL {
        assert_eq!(Shape::from_name(shape.name()), Some(shape));
        assert_eq!(shape.variant(), format!("{shape:?}"));
    }
    assert_eq!(Shape::from_name("Uuid"), None);
}

#[test]
fn type_names_that_could_mean_two_shapes_are_not_known() {
    for name in ["DateTime", "NonZero", "TenantId", "f64", "Option", ""] {
        assert_eq!(Shape::of_type(name), None, "{name}");
    }
    assert_eq!(Shape::of_type("i128"), Some(Shape::Int));
    assert_eq!(Shape::of_type("NonZeroU64"), Some(Shape::Uint));
    assert_eq!(Shape::of_type("NonZeroI8"), Some(Shape::Int));
    assert_eq!(Shape::of_type("NaiveDate"), Some(Shape::Date));
    assert_eq!(Shape::of_type("NaiveDateTime"), Some(Shape::DateTime));
    assert_eq!(Shape::of_type("OffsetDateTime"), Some(Shape::Timestamp));
    for name in ["str", "String", "Cow"] {
        assert_eq!(Shape::of_type(name), Some(Shape::Text), "{name}");
    }
    for name in ["NaiveTime", "Time"] {
        assert_eq!(Shape::of_type(name), Some(Shape::Time), "{name}");
    }
    assert_eq!(Shape::of_type("Uuid"), Some(Shape::Uuid));
    assert_eq!(Shape::of_type("bool"), Some(Shape::Bool));
    assert_eq!(Shape::of_type("char"), Some(Shape::Char));
}

proptest! {
    #[test]
    fn integers_are_in_their_shapes(int: i128, uint: u128) {
        prop_assert!(renders(Shape::Int, &int.to_string()));
        prop_assert!(renders(Shape::Uint, &uint.to_string()));
    }

    #[test]
    fn escaped_values_are_in_their_shapes(text: String, c: char) {
        prop_assert!(renders(Shape::Text, &escaped(&text)));
        prop_assert!(renders(Shape::Char, &escaped(&c.to_string())));
        prop_assert!(renders(Shape::Raw, &text));
    }
}
