//! Two ways to write one pattern give the same pattern.

use advisory_pattern::{Filter, Shape};

use crate::pattern;

fn shaped(text: &str) -> String {
    pattern(text).shaped(|_| Shape::Text).to_string()
}

#[test]
fn shaped_pattern_writes_out_what_the_types_say() {
    let written = pattern("a:< id >:<day|display>:<n: uint>").shaped(|_| Shape::Uuid);
    assert_eq!(
        written.to_string(),
        "a:<id: uuid>:<day: text|display>:<n: uint>"
    );
    let sources: Vec<_> = written.placeholders().map(|p| p.source.as_str()).collect();
    assert_eq!(sources, ["id: uuid", "day: text|display", "n: uint"]);
}

#[test]
fn shaped_pattern_has_one_way_to_write_filters() {
    assert_eq!(shaped("<a|raw>"), "<a: raw>");
    assert_eq!(shaped("<a: text|raw>"), "<a: raw>");
    assert_eq!(shaped("<a: char|raw>"), "<a: raw>");
    assert_eq!(
        shaped("<a|lower|raw|trim|display>"),
        "<a: raw|display|trim|lower>"
    );
}

#[test]
fn same_form_ignores_names_and_slices_only() {
    let same = |a: &str, b: &str| {
        let [a, b] = [a, b].map(|text| pattern(text).shaped(|_| Shape::Text));
        a.same_form(&b)
    };
    assert!(same("account:<from>", "account:<ids*>"));
    assert!(same("<a|trim|lower>", "<b: text | lower|trim>"));
    assert!(!same("account:<id>", "account:<id: uuid>"));
    assert!(!same("<a>", "<a|trim>"));
    assert!(!same("<a>:x", "<a>:y"));
    assert!(!same("<a>", "<a>:"));
}

#[test]
fn placeholders_are_equal_by_name_shape_filters_and_slice() {
    let placeholder = |text: &str| pattern(text).placeholders().next().cloned();
    assert_eq!(
        placeholder("<a|lower|trim>"),
        placeholder("<a| lower | trim>")
    );
    for other in ["<b>", "<a*>", "<a: int>", "<a|trim>"] {
        assert_ne!(placeholder("<a>"), placeholder(other), "{other}");
    }
}

#[test]
fn the_expansion_names_a_filter_as_the_variant() {
    for filter in Filter::ALL {
        assert_eq!(filter.variant(), format!("{filter:?}"));
    }
}

#[test]
fn misfits_are_filters_that_the_type_does_not_take() {
    let misfits = |text: &str, shape| {
        let pattern = pattern(text);
        pattern
            .placeholders()
            .flat_map(|p| p.misfits(|_| shape))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        misfits("<n|trim|raw>", Shape::Int),
        [Filter::Trim, Filter::Raw]
    );
    assert_eq!(misfits("<n|display|trim|raw>", Shape::Int), []);
    assert_eq!(misfits("<c|lower|raw>", Shape::Char), [Filter::Lower]);
    assert_eq!(misfits("<t|lower|raw|trim|display>", Shape::Text), []);
}

#[test]
fn rendered_shape_follows_the_filters() {
    let rendered = |text: &str, shape| {
        let pattern = pattern(text);
        pattern
            .placeholders()
            .map(|p| p.rendered_shape(|_| shape))
            .next()
    };
    assert_eq!(rendered("<n>", Shape::Int), Some(Shape::Int));
    assert_eq!(rendered("<n|display>", Shape::Int), Some(Shape::Text));
    assert_eq!(rendered("<n|display|raw>", Shape::Int), Some(Shape::Raw));
    assert_eq!(rendered("<n: uuid>", Shape::Int), Some(Shape::Uuid));
    assert_eq!(rendered("<c|raw>", Shape::Char), Some(Shape::Raw));
    assert_eq!(rendered("<t|trim>", Shape::Text), Some(Shape::Text));
}
