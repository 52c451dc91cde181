//! `Json`: a value of JSON with its keys in order; and `Kind`: what values of one place have in common.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Truth(bool),
    Whole(i128),
    Real(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

struct JsonVisitor;

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Truth(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Whole(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Whole(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Real(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        let mut object: Vec<(String, Json)> = Vec::new();
        while let Some((key, value)) = fields.next_entry::<String, Json>()? {
            if object.iter().any(|(other, _)| *other == key) {
                return Err(A::Error::custom(format!("the key {key:?} stands twice")));
            }
            object.push((key, value));
        }
        Ok(Json::Object(object))
    }
}

/// The kind of the values at one place in all lines.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Nulls alone.
    Null,
    Truth,
    /// Whole numbers, from the least to the greatest.
    Whole(i128, i128),
    Real,
    Text,
    List(Box<Kind>),
    Object(Vec<(String, Kind)>),
}

impl Kind {
    /// The kind of a value. Items of a list have to have one kind.
    pub(super) fn of(value: &Json) -> Result<Self, String> {
        Ok(match value {
            Json::Null => Self::Null,
            Json::Truth(_) => Self::Truth,
            Json::Whole(number) => Self::Whole(*number, *number),
            Json::Real(_) => Self::Real,
            Json::Text(_) => Self::Text,
            Json::List(items) => {
                let kinds = items.iter().map(Self::of);
                let kind = kinds.reduce(|one, other| one?.and(other?)).unwrap_or(Ok(Self::Null));
                Self::List(Box::new(kind?))
            }
            Json::Object(fields) => {
                let kinds = fields.iter().map(|(key, value)| Ok((key.clone(), Self::of(value)?)));
                Self::Object(kinds.collect::<Result<_, String>>()?)
            }
        })
    }

    /// The kind that this one and another have in common.
    pub(super) fn and(self, other: Self) -> Result<Self, String> {
        Ok(match (self, other) {
            (Self::Null, kind) | (kind, Self::Null) => kind,
            (Self::Whole(least, most), Self::Whole(other_least, other_most)) => {
                let (least, most) = (least.min(other_least), most.max(other_most));
                if least < 0 && most > i64::MAX.into() {
                    return Err(format!("{least} and {most}, which no type of 64 bits holds"));
                }
                Self::Whole(least, most)
            }
            (Self::Whole(..) | Self::Real, Self::Whole(..) | Self::Real) => Self::Real,
            (Self::List(one), Self::List(other)) => Self::List(Box::new(one.and(*other)?)),
            (Self::Object(mut fields), Self::Object(others)) => {
                for (key, kind) in others {
                    match fields.iter_mut().find(|(other, _)| *other == key) {
                        Some((_, found)) => *found = found.clone().and(kind)?,
                        None => fields.push((key, kind)),
                    }
                }
                Self::Object(fields)
            }
            (one, other) if one == other => one,
            (one, other) => return Err(format!("{} and {}", one.describe(), other.describe())),
        })
    }

    fn describe(&self) -> &'static str {
        match self {
            Self::Null => "a null",
            Self::Truth => "a truth value",
            Self::Whole(..) | Self::Real => "a number",
            Self::Text => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}
