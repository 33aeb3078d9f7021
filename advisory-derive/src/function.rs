//! The annotated function: its signature as far as the lock needs it, and its body as tokens.
//!
//! The body is never parsed, and everything before it is passed on as it is: that costs a crate with a thousand locked
//! functions the least, and cannot lose a span.

use crate::{args::ungrouped, errors::Errors};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Error, Type};

pub(crate) struct Function {
    /// Attributes, visibility and signature: all that stands before the body.
    pub(crate) head: TokenStream,
    pub(crate) name: Ident,
    pub(crate) receiver: Option<Receiver>,
    pub(crate) params: Vec<Param>,
    pub(crate) output: Type,
    pub(crate) body: Group,
}

/// How `self` arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiver {
    Value,
    /// By value, and declared `mut`.
    MutValue,
    Shared,
    Mutable,
}

pub(crate) struct Param {
    /// The names that the pattern binds.
    pub(crate) names: Vec<Ident>,
    /// Of the whole pattern; the name's own type only where the pattern is a name alone.
    pub(crate) ty: TokenStream,
    pub(crate) is_name: bool,
    pub(crate) is_mut: bool,
}

impl Param {
    pub(crate) fn is_reference(&self) -> bool {
        matches!(self.ty.clone().into_iter().next(), Some(TokenTree::Punct(punct)) if punct.as_char() == '&')
    }
}

pub(crate) fn parse(item: TokenStream, errors: &mut Errors) -> Option<Function> {
    signature(item).map_err(|error| errors.push(error)).ok()
}

fn signature(item: TokenStream) -> Result<Function, Error> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let body = match tokens.pop().map(ungrouped) {
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
        Some(other) => {
            return Err(Error::new(
                other.span(),
                "`#[advisory_lock]` goes on a function with a body: the PostgreSQL implementation, not the trait",
            ));
        }
        None => return Err(Error::new(Span::call_site(), NOT_A_FUNCTION)),
    };
    let head: TokenStream = tokens.iter().cloned().collect();
    let Some(keyword) = tokens.iter().position(|token| is_word(token, "fn")) else {
        return Err(Error::new(
            tokens.first().map_or_else(Span::call_site, TokenTree::span),
            NOT_A_FUNCTION,
        ));
    };
    let is_async = tokens[..keyword]
        .iter()
        .any(|token| is_word(token, "async"));
    let mut rest = tokens.drain(keyword..).skip(1);
    let Some(TokenTree::Ident(name)) = rest.next() else {
        return Err(Error::new(Span::call_site(), NOT_A_FUNCTION));
    };
    if !is_async {
        return Err(Error::new(
            name.span(),
            format_args!(
                "`{name}` is not `async`: write `async fn {name}`, with a connection of diesel-async"
            ),
        ));
    }
    let mut rest: Vec<TokenTree> = rest.collect();
    let Some(params) = rest.iter().position(
        |token| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis),
    ) else {
        return Err(Error::new(name.span(), NOT_A_FUNCTION));
    };
    let after: Vec<TokenTree> = rest.split_off(params + 1);
    let Some(TokenTree::Group(params)) = rest.pop() else {
        return Err(Error::new(name.span(), NOT_A_FUNCTION));
    };
    let output = output(after, name.span())?;
    let (mut receiver, mut typed) = (None, Vec::new());
    for tokens in split_params(params.stream()) {
        match param(tokens) {
            Some(ParamOrReceiver::Receiver(found)) => receiver = Some(found),
            Some(ParamOrReceiver::Param(found)) => typed.push(found),
            None => {}
        }
    }
    Ok(Function {
        head,
        name,
        receiver,
        params: typed,
        output,
        body,
    })
}

const NOT_A_FUNCTION: &str = "`#[advisory_lock]` goes on a function: expected `async fn`";

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

/// The type after `->`, up to a `where` clause.
fn output(tokens: Vec<TokenTree>, name: Span) -> Result<Type, Error> {
    let mut tokens = tokens.into_iter().peekable();
    let arrow = |token: Option<&TokenTree>, wanted| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
    if !arrow(tokens.peek(), '-') {
        return Err(Error::new(
            name,
            "a locked function returns `Result`, since taking the lock can fail: write `-> QueryResult<()>`, or a `Result` \
             with your own error type",
        ));
    }
    let ty = tokens
        .skip(2)
        .take_while(|token| !is_word(token, "where"))
        .collect();
    let ty = syn::parse2(ty)?;
    if is_no_result(&ty) {
        let message = format_args!(
            "a locked function returns `Result`, since taking the lock can fail: write `-> QueryResult<{}>`, or a `Result` \
             with your own error type",
            ty.to_token_stream().to_string().replace(' ', "")
        );
        return Err(Error::new_spanned(&ty, message));
    }
    Ok(ty)
}

/// Whether a type can be no `Result`, also under another name. The rest is left to the compiler, whose error says the same
/// and more besides.
fn is_no_result(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            name.starts_with(char::is_lowercase)
                || matches!(name.as_str(), "Option" | "String" | "Vec" | "Box")
        }),
        Type::Tuple(_)
        | Type::Reference(_)
        | Type::Array(_)
        | Type::ImplTrait(_)
        | Type::Never(_) => true,
        _ => false,
    }
}

enum ParamOrReceiver {
    Receiver(Receiver),
    Param(Param),
}

fn param(tokens: Vec<TokenTree>) -> Option<ParamOrReceiver> {
    let mut tokens = without_attributes(tokens);
    let colon = tokens
        .iter()
        .enumerate()
        .position(|(index, _)| is_single_colon(&tokens, index));
    let Some(colon) = colon else {
        let is_reference =
            matches!(tokens.first(), Some(TokenTree::Punct(punct)) if punct.as_char() == '&');
        let is_mut = tokens.iter().any(|token| is_word(token, "mut"));
        return tokens.iter().any(|token| is_word(token, "self")).then_some(
            ParamOrReceiver::Receiver(match (is_reference, is_mut) {
                (false, false) => Receiver::Value,
                (false, true) => Receiver::MutValue,
                (true, false) => Receiver::Shared,
                (true, true) => Receiver::Mutable,
            }),
        );
    };
    let is_mut = tokens.first().is_some_and(|token| is_word(token, "mut"));
    let ty: TokenStream = tokens.split_off(colon).into_iter().skip(1).collect();
    if tokens.iter().any(|token| is_word(token, "self")) {
        // `self: &mut Self` and the like; `Pin<&mut Self>` and `Box<Self>` are values that can be borrowed.
        let mut words = ty.into_iter();
        let is_reference =
            matches!(words.next(), Some(TokenTree::Punct(punct)) if punct.as_char() == '&');
        return Some(ParamOrReceiver::Receiver(
            match (is_reference, words.any(|token| is_word(&token, "mut"))) {
                (false, _) if is_mut => Receiver::MutValue,
                (false, _) => Receiver::Value,
                (true, false) => Receiver::Shared,
                (true, true) => Receiver::Mutable,
            },
        ));
    }
    let mut names = Vec::new();
    let is_name = tokens
        .iter()
        .all(|token| matches!(token, TokenTree::Ident(_)));
    bindings(&tokens, false, &mut names);
    Some(ParamOrReceiver::Param(Param {
        names,
        ty,
        is_name,
        is_mut,
    }))
}

fn without_attributes(tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#') {
            tokens.next();
        } else {
            kept.push(token);
        }
    }
    kept
}

/// A `:` that is no half of a `::`.
fn is_single_colon(tokens: &[TokenTree], index: usize) -> bool {
    let colon = |index: Option<usize>| {
        index
            .and_then(|index| tokens.get(index))
            .is_some_and(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':'))
    };
    colon(Some(index)) && !colon(index.checked_sub(1)) && !colon(index.checked_add(1))
}

/// The names that a pattern binds: words that are no path, no field name before its `:`, no constructor.
fn bindings(tokens: &[TokenTree], in_struct: bool, names: &mut Vec<Ident>) {
    let punct = |index: usize, wanted: char| matches!(tokens.get(index), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                bindings(&tokens, group.delimiter() == Delimiter::Brace, names);
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
                if !(starts_group || in_path || is_field || is_keyword || is_constructor) {
                    names.push(ident.clone());
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Splits parameters at their commas; those inside `<…>` of a type are not.
fn split_params(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut params = vec![Vec::new()];
    let (mut angles, mut after_dash) = (0_usize, false);
    for token in tokens {
        let character = match &token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        match character {
            '<' => angles += 1,
            '>' if !after_dash => angles = angles.saturating_sub(1),
            ',' if angles == 0 => {
                params.push(Vec::new());
                continue;
            }
            _ => {}
        }
        after_dash = character == '-';
        if let Some(param) = params.last_mut() {
            param.push(token);
        }
    }
    params.retain(|param| !param.is_empty());
    params
}

/// A `let` at the top of the body that takes a name.
pub(crate) struct Binding {
    pub(crate) span: Span,
    /// What is bound, as text.
    pub(crate) value: String,
    /// Whether it is made from what had the name before: `let conn = &mut *conn;`.
    pub(crate) mentions_itself: bool,
}

impl Function {
    /// The first `let name = …;` at the top of the body.
    pub(crate) fn body_binding(&self, name: &str) -> Option<Binding> {
        let mut tokens = self.body.stream().into_iter().peekable();
        while let Some(token) = tokens.next() {
            if !is_word(&token, "let") {
                continue;
            }
            if tokens.peek().is_some_and(|token| is_word(token, "mut")) {
                tokens.next();
            }
            let Some(bound) = tokens.next_if(|token| is_word(token, name)) else {
                continue;
            };
            let statement = tokens.by_ref().take_while(|token| !is_punct(token, ';'));
            let value: TokenStream = statement
                .skip_while(|token| !is_punct(token, '='))
                .skip(1)
                .collect();
            return Some(Binding {
                span: bound.span(),
                mentions_itself: mentions(&value, name),
                value: value.to_string().replace(" ?", "?"),
            });
        }
        None
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

fn mentions(tokens: &TokenStream, name: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(&group.stream(), name),
        token => is_word(&token, name),
    })
}
