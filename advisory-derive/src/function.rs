//! The annotated function: the parts of its signature that the lock needs, and its body as tokens.
//!
//! The body is never parsed, and all tokens before it are emitted unchanged. That is cheapest for a crate with a thousand locked
//! functions, and no span is lost.

pub(crate) mod async_trait;
pub(crate) mod params;

use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::tokens::{is_punct, is_word, spelled, ungrouped};
use params::{Param, Receiver};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Error, Type};

pub(crate) struct Function {
    /// Attributes, visibility and signature: everything before the body.
    pub(crate) head: TokenStream,
    /// The position of the parameters in it.
    params_at: usize,
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
    BoxedFuture,
    /// A plain `fn`, for Diesel's own connections.
    Blocking,
}

pub(crate) fn parse(
    item: TokenStream,
    attribute: Attribute,
    errors: &mut Errors,
) -> Option<Function> {
    signature(item, attribute)
        .map_err(|error| errors.push(error))
        .ok()
}

fn signature(item: TokenStream, attribute: Attribute) -> Result<Function, Error> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let body = match tokens.pop().map(ungrouped) {
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
        Some(other) => {
            return Err(Error::new(
                other.span(),
                format_args!(
                    "{} needs a function with a body: write it in the PostgreSQL implementation, not in the trait",
                    attribute.name()
                ),
            ));
        }
        None => return Err(Error::new(Span::call_site(), expected_function(attribute))),
    };
    let head: TokenStream = tokens.iter().cloned().collect();
    let Some(keyword) = tokens.iter().position(|token| is_word(token, "fn")) else {
        return Err(Error::new(
            tokens.first().map_or_else(Span::call_site, TokenTree::span),
            not_a_function(&tokens, attribute),
        ));
    };
    let is_async = tokens[..keyword]
        .iter()
        .any(|token| is_word(token, "async"));
    let constant = tokens[..keyword]
        .iter()
        .find(|token| is_word(token, "const"));
    if let Some(constant) = constant {
        let message = format_args!(
            "a `const fn` cannot take a {}: write `fn` or `async fn`",
            attribute.noun()
        );
        return Err(Error::new(constant.span(), message));
    }
    let mut rest = tokens.drain(keyword..).skip(1);
    let Some(TokenTree::Ident(name)) = rest.next() else {
        return Err(Error::new(Span::call_site(), expected_function(attribute)));
    };
    let mut rest: Vec<TokenTree> = rest.collect();
    let Some(params) = params::position(&rest) else {
        return Err(Error::new(name.span(), expected_function(attribute)));
    };
    // After `fn` and the name.
    let params_at = keyword + 2 + params;
    let after: Vec<TokenTree> = rest.split_off(params + 1);
    let Some(TokenTree::Group(params)) = rest.pop() else {
        return Err(Error::new(name.span(), expected_function(attribute)));
    };
    let written = written_output(after);
    let future = if is_async {
        None
    } else {
        async_trait::future(&written, &body)
    };
    let (output, body, form) = match future {
        Some((output, body)) => (output, body, Form::BoxedFuture),
        None if is_async => (output(written, name.span(), attribute)?, body, Form::Async),
        None => {
            if let Some(why) = hidden_async(&written, &params.stream()) {
                let message = format_args!("`{name}` {why}: write `async fn {name}`");
                return Err(Error::new(name.span(), message));
            }
            (
                output(written, name.span(), attribute)?,
                body,
                Form::Blocking,
            )
        }
    };
    let (receiver, params) = params::parse(params.stream());
    Ok(Function {
        head,
        params_at,
        name,
        receiver,
        params,
        output,
        body,
        form,
    })
}

fn expected_function(attribute: Attribute) -> String {
    format!("expected a function: {} needs `fn`", attribute.name())
}

/// The message for an item that is not a function, by its first keyword.
fn not_a_function(tokens: &[TokenTree], attribute: Attribute) -> String {
    let expected = expected_function(attribute);
    let has = |word: &str| tokens.iter().any(|token| is_word(token, word));
    if has("impl") {
        format!(
            "{expected}; write it on each method that needs the {}",
            attribute.noun()
        )
    } else if has("struct") {
        format!("{expected}; to declare a lock as a type, write `#[derive(LockKey)]`")
    } else {
        expected
    }
}

/// The sign that a plain `fn` is asynchronous, in the words of a message.
fn hidden_async(output: &TokenStream, params: &TokenStream) -> Option<&'static str> {
    if mentions(output, "Future") || mentions(output, "BoxFuture") {
        return Some("returns a future");
    }
    mentions(params, "AsyncPgConnection").then_some("has an async connection but is not `async`")
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

fn output(written: TokenStream, name: Span, attribute: Attribute) -> Result<Type, Error> {
    let noun = attribute.noun();
    if written.is_empty() {
        return Err(Error::new(
            name,
            format_args!(
                "a locked function must return a `Result`, because acquiring the {noun} can fail: write \
                 `-> QueryResult<()>`, or a `Result` with your own error type"
            ),
        ));
    }
    let ty = syn::parse2(written)?;
    if cannot_be_result(&ty) {
        let message = format_args!(
            "a locked function must return a `Result`, because acquiring the {noun} can fail: write `-> QueryResult<{}>`, or a `Result` \
             with your own error type",
            spelled(&ty.to_token_stream())
        );
        return Err(Error::new_spanned(&ty, message));
    }
    Ok(ty)
}

/// Whether a type is certainly not a `Result`, nor an alias of one. For other types the compiler has a more detailed error.
fn cannot_be_result(ty: &Type) -> bool {
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
        Type::Group(group) => cannot_be_result(&group.elem),
        _ => false,
    }
}

/// A `let` at the top of the body that binds a name.
pub(crate) struct Binding {
    pub(crate) span: Span,
    /// The bound expression, as text.
    pub(crate) value: String,
    /// Whether the expression uses the same name: `let conn = &mut *conn;`.
    pub(crate) mentions_itself: bool,
}

impl Function {
    /// Allows the body to leave the parameters unused that the lock uses.
    pub(crate) fn allow_unused(&mut self, is_used: impl Fn(&Ident) -> bool) {
        if self.form == Form::BoxedFuture {
            self.body = async_trait::allow_unused(&self.body, is_used);
        }
    }

    /// The head, with a `self` that is taken by value declared `mut`.
    pub(crate) fn head_with_mut_self(&self) -> TokenStream {
        let mut head: Vec<TokenTree> = self.head.clone().into_iter().collect();
        if let Some(TokenTree::Group(params)) = head.get_mut(self.params_at) {
            let mut tokens: Vec<TokenTree> = params.stream().into_iter().collect();
            if let Some(receiver) = tokens.iter().position(|token| is_word(token, "self")) {
                let word = Ident::new("mut", Span::mixed_site());
                tokens.insert(receiver, word.into());
            }
            let mut with_mut = Group::new(Delimiter::Parenthesis, tokens.into_iter().collect());
            with_mut.set_span(params.span());
            *params = with_mut;
        }
        head.into_iter().collect()
    }

    pub(crate) fn has_param(&self, name: &Ident) -> bool {
        self.params.iter().any(|param| param.names.contains(name))
    }

    pub(crate) fn is_blocking(&self) -> bool {
        self.form == Form::Blocking
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

#[cfg(test)]
mod tests {
    use super::{cannot_be_result, parse};
    use crate::attribute::Attribute;
    use crate::errors::Errors;
    use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

    #[test]
    fn only_a_block_is_a_body() {
        for (item, is_one) in [
            ("fn run(at: At) -> Done { at }", true),
            ("fn run(at: At) -> (At, Done)", false),
            ("fn run(at: At) -> [Done; 2]", false),
        ] {
            let item = item.parse().expect("tokens");
            let function = parse(item, Attribute::Lock, &mut Errors::default());
            assert_eq!(function.is_some(), is_one);
        }
    }

    #[test]
    fn a_type_is_known_not_to_be_a_result() {
        for (written, cannot) in [
            ("u64", true),
            ("Option<Done>", true),
            ("std::string::String", true),
            ("(At, Done)", true),
            ("&Done", true),
            ("[Done; 2]", true),
            ("impl Sized", true),
            ("!", true),
            ("Done", false),
            ("io::Result<Done>", false),
            ("dyn Done", false),
        ] {
            let tokens: TokenStream = written.parse().expect("tokens");
            // As a `macro_rules` macro passes it on.
            let group = TokenTree::Group(Group::new(Delimiter::None, tokens.clone()));
            for tokens in [tokens, group.into()] {
                let ty = syn::parse2(tokens).expect("a type");
                assert_eq!(cannot_be_result(&ty), cannot, "{written}");
            }
        }
    }
}
