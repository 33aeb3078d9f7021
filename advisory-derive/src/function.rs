//! The annotated function: its signature as far as the lock needs it, and its body as tokens.
//!
//! The body is never parsed, and everything before it is passed on as it is: that costs a crate with a thousand locked
//! functions the least, and cannot lose a span.

use crate::boxed;
use crate::errors::Errors;
use crate::params::{self, Param, Receiver};
use crate::tokens::{is_punct, is_word, ungrouped};
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
    pub(crate) form: Form,
}

/// How the function runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Async,
    /// `#[async_trait]` has made it a function that returns a boxed future; output and body are the future's.
    Boxed,
    /// A plain `fn`, for Diesel's own connections.
    Blocking,
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
    let mut rest: Vec<TokenTree> = rest.collect();
    let Some(params) = params::position(&rest) else {
        return Err(Error::new(name.span(), NOT_A_FUNCTION));
    };
    let after: Vec<TokenTree> = rest.split_off(params + 1);
    let Some(TokenTree::Group(params)) = rest.pop() else {
        return Err(Error::new(name.span(), NOT_A_FUNCTION));
    };
    let written = written_output(after);
    let boxed = if is_async {
        None
    } else {
        boxed::unboxed(&written, &body)
    };
    let (output, body, form) = match boxed {
        Some((output, body)) => (output, body, Form::Boxed),
        None if is_async => (output(written, name.span())?, body, Form::Async),
        None => {
            if let Some(why) = is_async_in_disguise(&written, &params.stream()) {
                let message = format_args!("`{name}` {why}: write `async fn {name}`");
                return Err(Error::new(name.span(), message));
            }
            (output(written, name.span())?, body, Form::Blocking)
        }
    };
    let (receiver, params) = params::parse(params.stream());
    Ok(Function {
        head,
        name,
        receiver,
        params,
        output,
        body,
        form,
    })
}

const NOT_A_FUNCTION: &str = "`#[advisory_lock]` goes on a function: expected `fn`";

/// What shows that a plain `fn` was meant to be an `async fn`.
fn is_async_in_disguise(output: &TokenStream, params: &TokenStream) -> Option<&'static str> {
    if mentions(output, "Future") || mentions(output, "BoxFuture") {
        return Some("returns a future");
    }
    mentions(params, "AsyncPgConnection").then_some("is not `async`, and its connection is")
}

/// The tokens after `->`, up to a `where` clause.
fn written_output(tokens: Vec<TokenTree>) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    if !tokens.peek().is_some_and(|token| is_punct(token, '-')) {
        return TokenStream::new();
    }
    tokens
        .skip(2)
        .take_while(|token| !is_word(token, "where"))
        .collect()
}

fn output(written: TokenStream, name: Span) -> Result<Type, Error> {
    if written.is_empty() {
        return Err(Error::new(
            name,
            "a locked function returns `Result`, since taking the lock can fail: write `-> QueryResult<()>`, or a `Result` \
             with your own error type",
        ));
    }
    let ty = syn::parse2(written)?;
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

/// A `let` at the top of the body that takes a name.
pub(crate) struct Binding {
    pub(crate) span: Span,
    /// What is bound, as text.
    pub(crate) value: String,
    /// Whether it is made from what had the name before: `let conn = &mut *conn;`.
    pub(crate) mentions_itself: bool,
}

impl Function {
    pub(crate) fn is_blocking(&self) -> bool {
        self.form == Form::Blocking
    }

    /// What takes a connection from a pool.
    pub(crate) fn get(&self) -> &'static str {
        if self.is_blocking() {
            ".get()?"
        } else {
            ".get().await?"
        }
    }

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

pub(crate) fn mentions(tokens: &TokenStream, name: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(&group.stream(), name),
        token => is_word(&token, name),
    })
}
