//! The kinds of parameters.

/// Where a function is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Free,
    /// In `impl Type`.
    Method(&'static str),
    /// In the implementation of a trait.
    Trait,
    /// In the implementation of a trait with `#[async_trait]`, or with these arguments of it.
    AsyncTrait(&'static str),
    /// The argument of a macro that emits it unchanged.
    Passed,
    /// Emitted by a macro whose arguments are the name, the type and the expression of the parameter.
    Made,
}

/// A kind of parameter, and what a function does with it.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "a table: each is a column")]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) generics: &'static str,
    pub(super) bounds: &'static str,
    pub(super) written: &'static str,
    /// Statements before everything else.
    pub(super) before: &'static str,
    /// An expression of it, an `i64`, for the body and for the arguments of the attribute.
    pub(super) read: &'static str,
    /// Its value in a call.
    pub(super) given: &'static str,
    pub(super) output: &'static str,
    /// The body's result, of the local `second`.
    pub(super) last: &'static str,
    /// The value of `on_held`.
    pub(super) held: &'static str,
    /// Whether the future of a function without an attribute is `Send`; the compiler checks it.
    pub(super) is_send: bool,
    /// Whether the body can share it with the lock: it is `Sync`, or the body moves it or borrows it mutably.
    pub(super) is_sync: bool,
    /// Whether the expression is of a field.
    pub(super) is_field: bool,
    /// Whether the result is `Send`.
    pub(super) output_is_send: bool,
    /// Whether the body moves it, or awaits.
    pub(super) moves: bool,
    pub(super) awaits: bool,
}

/// Plain.
const NUMBER: Parameter = Parameter {
    name: "number",
    place: Place::Free,
    generics: "",
    bounds: "",
    written: "room: i64",
    before: "",
    read: "room",
    given: "any()",
    output: "Result<i64, AppError>",
    last: "Ok(second)",
    held: "Ok({read})",
    is_send: true,
    is_sync: true,
    is_field: false,
    output_is_send: true,
    moves: false,
    awaits: false,
};

/// Not `Sync`, so that a body that borrows it as shared is not `Send`.
const CELL: Parameter = Parameter {
    name: "cell",
    written: "cell: Cell<i64>",
    read: "cell.get()",
    held: "Ok({read})",
    is_sync: false,
    ..NUMBER
};

const RECEIVER: Parameter = Parameter {
    place: Place::Method("Owner"),
    read: "self.last.get()",
    is_field: true,
    ..CELL
};

pub(super) const PARAMETERS: [Parameter; 43] = [
    NUMBER,
    CELL,
    Parameter {
        name: "text",
        written: "text: String",
        read: "length(&text)",
        last: "drop(text); Ok(second)",
        moves: true,
        ..NUMBER
    },
    Parameter {
        name: "borrowed",
        written: "guest: &str, other: &'static str",
        read: "length(guest) + length(other)",
        given: "any(), any()",
        ..NUMBER
    },
    Parameter {
        name: "returned",
        generics: "<'a>",
        written: "guest: &'a str",
        read: "length(guest)",
        output: "Result<&'a str, AppError>",
        last: "Ok(guest)",
        held: "Ok(guest)",
        ..NUMBER
    },
    Parameter {
        name: "boxed",
        written: "scale: Box<dyn Fn(i64) -> i64 + Send>",
        read: "scale(1)",
        is_sync: false,
        ..NUMBER
    },
    Parameter {
        name: "alias",
        written: "cells: Pair<Count>",
        read: "cells.0.get()",
        output: "Fallible<i64>",
        is_field: true,
        ..CELL
    },
    Parameter {
        name: "generic",
        generics: "<F, T>",
        bounds: "where F: for<'x> Fn(&'x str) -> i64 + Send, T: Into<i64> + Clone + Send",
        written: "measure: F, value: T",
        read: "measure(\"a\") + value.clone().into()",
        given: "any::<Box<dyn Fn(&str) -> i64 + Send>>(), any::<Unshared>()",
        is_sync: false,
        ..NUMBER
    },
    Parameter {
        name: "nested_generics",
        generics: "<K, V, const N: usize>",
        bounds: "where K: Ord + Send, V: Send",
        written: "map: BTreeMap<K, Vec<V>>, all: [V; N]",
        read: "count(map.len() + all.len())",
        given: "BTreeMap::<i64, Vec<Cell<i64>>>::new(), any::<[Cell<i64>; 3]>()",
        is_sync: false,
        ..NUMBER
    },
    Parameter {
        name: "opaque",
        written: "scale: impl Fn(i64) -> i64 + Send",
        read: "scale(1)",
        given: "any::<Box<dyn Fn(i64) -> i64 + Send>>()",
        is_sync: false,
        ..NUMBER
    },
    Parameter {
        name: "opaque_result",
        output: "Result<impl Iterator<Item = i64> + Send, AppError>",
        last: "Ok(std::iter::once(second))",
        held: "Ok(std::iter::once({read}))",
        ..CELL
    },
    Parameter {
        name: "dynamic_result",
        output: "Result<Box<dyn std::fmt::Debug + Send>, AppError>",
        last: "Ok(Box::new(second))",
        held: "Ok(Box::new({read}))",
        ..CELL
    },
    Parameter {
        name: "exclusive",
        written: "cell: &mut Cell<i64>, other: Option<&mut Cell<i64>>",
        read: "cell.get() + other.as_ref().map_or(0, |other| other.get())",
        given: "any(), any()",
        ..CELL
    },
    Parameter {
        name: "exclusive_result",
        generics: "<'a>",
        written: "cell: &'a mut Cell<i64>",
        output: "Result<&'a mut Cell<i64>, AppError>",
        last: "Ok(cell)",
        held: "Ok(cell)",
        is_sync: true,
        moves: true,
        ..CELL
    },
    Parameter {
        name: "patterns",
        written: "(one, [two, _]): (Cell<i64>, [Cell<i64>; 2]), Wrapped(three): Wrapped<Cell<i64>>, Point { x, y: four }: Point, \
                  &(five, _): &(i64, i64)",
        read: "one.get() + two.get() + three.get() + x.get() + four + five",
        given: "any(), any(), any(), any()",
        ..CELL
    },
    Parameter {
        name: "mutable",
        written: "mut cell: Cell<i64>, Wrapped((mut other, _)): Wrapped<(Cell<i64>, i64)>",
        before: "*cell.get_mut() += 1; *other.get_mut() += 1;",
        read: "cell.get() + other.get()",
        given: "any(), any()",
        is_sync: true,
        ..CELL
    },
    Parameter {
        name: "unused",
        written: "_: Cell<i64>, _cell: Cell<i64>, r#type: Cell<i64>",
        read: "r#type.get()",
        given: "any(), any(), any()",
        ..CELL
    },
    Parameter {
        name: "formatted",
        written: "shown: Shown",
        read: "length(&format!(\"{shown:>3}\"))",
        ..CELL
    },
    Parameter {
        name: "named_as_ours",
        written: "held: Cell<i64>, (request, result): (Cell<i64>, i64), error: i64, this: i64",
        read: "held.get() + request.get() + result + error + this",
        given: "any(), any(), 1, 2",
        ..CELL
    },
    Parameter {
        name: "conditional",
        written: "#[cfg(windows)] cell: Rc<i64>, #[cfg(not(windows))] cell: Cell<i64>, #[allow(unused_variables)] other: Cell<i64>, \
                  #[cfg(not(windows))] third: &mut Cell<i64>",
        read: "cell.get() + other.get() + third.get()",
        given: "any(), any(), any()",
        ..CELL
    },
    Parameter {
        name: "called",
        written: "scale: fn(i64) -> i64, other: &mut (dyn FnMut(i64) -> i64 + Send)",
        before: "other(1);",
        read: "scale(1)",
        given: "same, any()",
        ..NUMBER
    },
    Parameter {
        name: "future",
        written: "future: impl Future<Output = i64> + Send, other: Pin<Box<dyn Future<Output = i64> + Send>>",
        before: "future.await; other.await;",
        read: "1",
        given: "work(1), any()",
        awaits: true,
        ..NUMBER
    },
    Parameter {
        name: "rc",
        written: "cell: Rc<Cell<i64>>",
        is_send: false,
        ..CELL
    },
    Parameter {
        name: "shared",
        written: "cell: &Cell<i64>",
        is_send: false,
        ..CELL
    },
    Parameter {
        name: "guard",
        written: "number: MutexGuard<'_, i64>",
        read: "*number",
        is_send: false,
        ..NUMBER
    },
    Parameter {
        name: "by_ref",
        written: "Wrapped(ref cell): Wrapped<Cell<i64>>",
        is_send: false,
        ..CELL
    },
    Parameter {
        name: "local",
        before: "let local = Rc::new(room);",
        last: "Ok(*local + second)",
        is_send: false,
        ..NUMBER
    },
    Parameter {
        name: "generic_not_send",
        generics: "<F: Fn(i64) -> i64>",
        written: "scale: F, other: impl Fn(i64) -> i64",
        read: "scale(1) + other(1)",
        given: "any::<Box<dyn Fn(i64) -> i64>>(), same",
        is_send: false,
        ..NUMBER
    },
    Parameter {
        name: "passed",
        place: Place::Passed,
        ..CELL
    },
    Parameter {
        name: "made",
        place: Place::Made,
        ..CELL
    },
    Parameter {
        name: "made_of_a_reference",
        place: Place::Made,
        written: "cell: &mut Cell<i64>",
        ..CELL
    },
    Parameter {
        name: "by_value",
        written: "self",
        ..RECEIVER
    },
    Parameter {
        name: "by_mut_value",
        written: "mut self",
        before: "*self.last.get_mut() += 1;",
        is_sync: true,
        ..RECEIVER
    },
    Parameter {
        name: "by_mut",
        written: "&mut self",
        ..RECEIVER
    },
    Parameter {
        name: "by_typed_mut",
        generics: "<'a>",
        written: "self: &'a mut Self",
        output: "Result<&'a Cell<i64>, AppError>",
        last: "Ok(&self.last)",
        held: "Ok(&self.last)",
        output_is_send: false,
        ..RECEIVER
    },
    Parameter {
        name: "by_box",
        written: "self: Box<Self>",
        ..RECEIVER
    },
    Parameter {
        name: "by_pin",
        written: "self: Pin<&mut Self>",
        ..RECEIVER
    },
    Parameter {
        name: "by_shared",
        place: Place::Method("Shared"),
        written: "&self",
        read: "self.last",
        ..NUMBER
    },
    Parameter {
        name: "by_arc",
        place: Place::Method("Shared"),
        written: "self: Arc<Self>",
        read: "self.last",
        ..NUMBER
    },
    Parameter {
        name: "by_shared_not_send",
        written: "&self",
        is_send: false,
        ..RECEIVER
    },
    Parameter {
        name: "in_a_trait",
        place: Place::Trait,
        written: "&mut self, cell: Cell<i64>",
        read: "self.last.get() + cell.get()",
        given: "any::<&mut Owner>(), any()",
        ..RECEIVER
    },
    Parameter {
        name: "in_an_async_trait",
        place: Place::AsyncTrait(""),
        written: "&mut self, cell: Cell<i64>",
        read: "self.last.get() + cell.get()",
        given: "any::<&mut Owner>(), any()",
        ..RECEIVER
    },
    Parameter {
        name: "in_an_async_trait_not_send",
        place: Place::AsyncTrait("(?Send)"),
        written: "&self, cell: Rc<Cell<i64>>",
        read: "self.last.get() + cell.get()",
        given: "any::<&Owner>(), any()",
        is_send: false,
        ..RECEIVER
    },
];
