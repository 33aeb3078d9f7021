//! The parameters of a function: which names they bind, and how `self` arrives.

use crate::tokens::{is_punct, is_word, without_groups};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiver {
    Value,
    /// By value, and declared `mut`.
    MutValue,
    Shared,
    Mutable,
}

pub(crate) struct Param {
    pub(crate) names: Vec<Ident>,
    /// Those of them that are declared `mut`.
    mut_names: Vec<Ident>,
    /// The type of the whole pattern, so a name's type only if the pattern is just that name.
    pub(crate) ty: TokenStream,
    pub(crate) is_name: bool,
    /// Its `#[cfg]` and `#[cfg_attr]`, which are expanded after this attribute and can remove it.
    pub(crate) conditions: TokenStream,
}

impl Param {
    pub(crate) fn is_reference(&self) -> bool {
        let mut tokens = self.ty.clone().into_iter();
        tokens.next().is_some_and(|token| is_punct(&token, '&'))
    }

    pub(crate) fn is_mutable_reference(&self) -> bool {
        // `&`, possibly a lifetime of two tokens, `mut`.
        let mut tokens = self.ty.clone().into_iter().skip(1).take(3);
        self.is_reference() && tokens.any(|token| is_word(&token, "mut"))
    }

    pub(crate) fn is_mut(&self, name: &Ident) -> bool {
        self.mut_names.contains(name)
    }
}

pub(crate) fn parse(tokens: TokenStream) -> (Option<Receiver>, Vec<Param>) {
    let (mut receiver, mut params) = (None, Vec::new());
    for tokens in split(tokens) {
        let (conditions, mut pattern) = without_attributes(tokens);
        let colon = (0..pattern.len()).find(|index| is_single_colon(&pattern, *index));
        let ty = colon.map(|colon| {
            let ty = pattern.split_off(colon).into_iter().skip(1).collect();
            without_groups(ty)
        });
        if pattern.iter().any(|token| is_word(token, "self")) {
            receiver = Some(Receiver::of(&pattern, ty));
        } else if let Some(ty) = ty {
            let is_name = |token: &TokenTree| matches!(token, TokenTree::Ident(_));
            let (names, mut_names) = bindings(&pattern, false);
            params.push(Param {
                names,
                mut_names,
                ty,
                is_name: pattern.iter().all(is_name),
                conditions,
            });
        }
    }
    (receiver, params)
}

impl Receiver {
    /// `&mut self`, or `self: &mut Self`. `Pin<&mut Self>` and `Box<Self>` are values.
    fn of(pattern: &[TokenTree], ty: Option<TokenStream>) -> Self {
        let is_mut = |tokens: &[TokenTree]| tokens.iter().any(|token| is_word(token, "mut"));
        let ty: Option<Vec<TokenTree>> = ty.map(|ty| ty.into_iter().collect());
        let borrow = ty.as_deref().unwrap_or(pattern);
        let is_reference = borrow.first().is_some_and(|first| is_punct(first, '&'));
        match (is_reference, is_mut(borrow)) {
            (true, true) => Self::Mutable,
            (true, false) => Self::Shared,
            (false, _) if is_mut(pattern) => Self::MutValue,
            (false, _) => Self::Value,
        }
    }
}

/// The position of the parameters: the first parentheses outside of the generics, which can contain
/// some, `F: Fn(i64) -> i64`.
pub(crate) fn position(tokens: &[TokenTree]) -> Option<usize> {
    let mut angles = Angles::default();
    tokens.iter().position(|token| {
        angles.pass(token);
        let is_parenthesis =
            matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
        angles.depth == 0 && is_parenthesis
    })
}

/// The depth of a token in angle brackets of a type or of generics; the one of `->` does not count.
#[derive(Default)]
struct Angles {
    depth: usize,
    after_dash: bool,
}

impl Angles {
    fn pass(&mut self, token: &TokenTree) {
        let character = match token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        match character {
            '<' => self.depth += 1,
            '>' if !self.after_dash => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.after_dash = character == '-';
    }
}

fn without_attributes(tokens: Vec<TokenTree>) -> (TokenStream, Vec<TokenTree>) {
    let (mut conditions, mut rest) = (TokenStream::new(), Vec::with_capacity(tokens.len()));
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        if !is_punct(&token, '#') {
            rest.push(token);
            continue;
        }
        let attribute = tokens.next();
        if attribute.as_ref().is_some_and(is_condition) {
            conditions.extend([Some(token), attribute].into_iter().flatten());
        }
    }
    (conditions, rest)
}

fn is_condition(attribute: &TokenTree) -> bool {
    let TokenTree::Group(group) = attribute else {
        return false;
    };
    let name = group.stream().into_iter().next();
    name.is_some_and(|name| is_word(&name, "cfg") || is_word(&name, "cfg_attr"))
}

/// Returns whether there is a `:` that is not part of a `::`.
fn is_single_colon(tokens: &[TokenTree], index: usize) -> bool {
    let colon = |index: Option<usize>| {
        index
            .and_then(|index| tokens.get(index))
            .is_some_and(|token| is_punct(token, ':'))
    };
    colon(Some(index)) && !colon(index.checked_sub(1)) && !colon(index.checked_add(1))
}

/// The names that a pattern binds, and those of them that are declared `mut`: identifiers that are
/// not part of a path, a field before its `:`, or a constructor.
pub(crate) fn bindings(tokens: &[TokenTree], in_struct: bool) -> (Vec<Ident>, Vec<Ident>) {
    let (mut names, mut mut_names) = (Vec::new(), Vec::new());
    let punct = |index: usize, wanted: char| {
        let token = tokens.get(index);
        token.is_some_and(|token| is_punct(token, wanted))
    };
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                let inner = bindings(&tokens, group.delimiter() == Delimiter::Brace);
                names.extend(inner.0);
                mut_names.extend(inner.1);
            }
            TokenTree::Ident(ident) => {
                let word = ident.to_string();
                let starts_group = matches!(tokens.get(index + 1), Some(TokenTree::Group(_)));
                let in_path = punct(index + 1, ':') && punct(index + 2, ':')
                    || index > 0 && punct(index - 1, ':') && punct(index.wrapping_sub(2), ':');
                let is_field = in_struct && is_single_colon(tokens, index + 1);
                let is_keyword = matches!(
                    word.as_str(),
                    "mut" | "ref" | "box" | "_" | "true" | "false"
                );
                let is_constructor = word.starts_with(char::is_uppercase);
                if starts_group || in_path || is_field || is_keyword || is_constructor {
                    continue;
                }
                // Not those of `ref mut name` and `&mut name`.
                let is_mut = match &tokens[..index] {
                    [.., before, last] if is_word(last, "mut") => {
                        !is_word(before, "ref") && !is_punct(before, '&')
                    }
                    [last] => is_word(last, "mut"),
                    _ => false,
                };
                mut_names.extend(is_mut.then(|| ident.clone()));
                names.push(ident.clone());
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    (names, mut_names)
}

/// Splits parameters at the commas between them, not at those inside the `<…>` of a type.
fn split(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut params = vec![Vec::new()];
    let mut angles = Angles::default();
    for token in tokens {
        angles.pass(&token);
        if angles.depth == 0 && is_punct(&token, ',') {
            params.push(Vec::new());
        } else if let Some(param) = params.last_mut() {
            param.push(token);
        }
    }
    params.retain(|param| !param.is_empty());
    params
}

#[cfg(test)]
mod tests {
    use super::{Receiver, parse, position};
    use proc_macro2::{Ident, TokenStream, TokenTree};

    fn tokens(text: &str) -> TokenStream {
        text.parse().expect("tokens")
    }

    fn words(names: &[Ident]) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        names.join(" ")
    }

    #[test]
    fn the_names_that_a_pattern_binds_are_known() {
        for (written, names, mut_names) in [
            ("conn: &mut C", "conn", ""),
            ("mut conn: C", "conn", "conn"),
            ("(mut a, b): (A, B)", "a b", "a"),
            ("(a, mut b): (A, B)", "a b", "b"),
            ("&mut a: &mut A", "a", ""),
            ("ref mut a: A", "a", ""),
            ("(b, ref mut a): A", "b a", ""),
            ("Json(body): Json<Body>", "body", ""),
            ("web::Json(body): Json<Body>", "body", ""),
            ("Body { from, to: target, .. }: Body", "from target", ""),
            ("schema::Body { to: (a, mut b) }: Body", "a b", "b"),
            ("Body { to: a::b::C(c) }: Body", "c", ""),
            ("(NONE, a): (A, B)", "a", ""),
            ("(a::b, _): (A, B)", "", ""),
            ("(a, ::b::C(c)): (A, C)", "a c", ""),
            ("[first, ..]: [A; 2]", "first", ""),
            ("whole @ Some(part): A", "whole part", ""),
            ("(true, false, a): A", "a", ""),
        ] {
            let (receiver, params) = parse(tokens(written));
            assert!(receiver.is_none() && params.len() == 1, "{written}");
            let found = (words(&params[0].names), words(&params[0].mut_names));
            assert_eq!(found, (names.to_owned(), mut_names.to_owned()), "{written}");
            let is_name =
                !written.contains(['(', '{', '[', '&', '@']) || written.starts_with("conn:");
            assert_eq!(params[0].is_name, is_name, "{written}");
        }
    }

    #[test]
    fn a_receiver_is_known_by_what_it_borrows() {
        for (written, wanted) in [
            ("mut self", Receiver::MutValue),
            ("&'a self", Receiver::Shared),
            ("self: Self", Receiver::Value),
            ("mut self: Self", Receiver::MutValue),
            ("self: &Self", Receiver::Shared),
            ("self: &'a mut Self", Receiver::Mutable),
            ("self: Pin<&mut Self>", Receiver::Value),
        ] {
            let (receiver, params) = parse(tokens(written));
            assert!(receiver == Some(wanted) && params.is_empty(), "{written}");
        }
    }

    #[test]
    fn a_condition_stays_with_its_parameter() {
        let (_, params) = parse(tokens(
            "#[cfg(a)] #[allow(b)] one: A, #[cfg_attr(c, d)] two: B, three: C",
        ));
        let conditions: Vec<String> = params
            .iter()
            .map(|param| param.conditions.to_string().replace(' ', ""))
            .collect();
        assert_eq!(conditions, ["#[cfg(a)]", "#[cfg_attr(c,d)]", ""]);
    }

    #[test]
    fn the_parentheses_of_a_bound_are_not_the_parameters() {
        for written in [
            "(a: A)",
            "<T>(a: A)",
            "<F: Fn(i64) -> Option<i64>>(a: A)",
            "<F: Fn(A) -> B, G: Fn(A)>(a: A) -> (B, C)",
        ] {
            let tokens: Vec<TokenTree> = tokens(written).into_iter().collect();
            let found = position(&tokens).map(|position| tokens[position].to_string());
            assert_eq!(found.as_deref(), Some("(a : A)"), "{written}");
        }
    }

    #[test]
    fn a_comma_inside_of_a_type_splits_nothing() {
        let (_, params) = parse(tokens(
            "a: HashMap<A, B>, f: impl Fn(A) -> Result<B, C>, b: Vec<A>,",
        ));
        let names: Vec<String> = params.iter().map(|param| words(&param.names)).collect();
        assert_eq!(names, ["a", "f", "b"]);
    }
}
