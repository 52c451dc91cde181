//! Structs of Arrow's C interface with any lengths, offsets, counts and pointers, in buffers that hold what they say: those
//! that are let in are lists whose values can be read, and hold what a reader of the structs finds.
#![no_main]

use std::ffi::{CString, c_char, c_void};
use std::ptr;

use arbitrary::Arbitrary;
use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_schema::DataType;
use batchloom::dataset::arrow_lists;
use batchloom::{Loader, SequenceDataset, dataset::Sequences};
use libfuzzer_sys::fuzz_target;

#[path = "../../../python/src/arrow_structs.rs"]
mod arrow_structs;

#[derive(Debug, Arbitrary)]
struct Level {
    format: u8,
    length: i16,
    offset: i8,
    nulls: i8,
    buffers: Option<i8>,
    children: Option<i8>,
    huge: Option<i64>,
    missing: [bool; 3],
    offsets: Vec<i8>,
    released: bool,
    dictionary: bool,
}

const FORMATS: [&str; 23] = [
    "+l", "+l", "+L", "+L", "+w:2", "+w:0", "+w:3", "+w:-1", "i", "l", "c", "C", "s", "S", "I", "L", "e",
    "f", "g", "b", "u", "U", "+s",
];
const WIDEST: usize = 8;

/// A struct, with everything that it points to.
struct Made {
    array: *mut FFI_ArrowArray,
    schema: *mut FFI_ArrowSchema,
}

extern "C" fn release_array(array: *mut FFI_ArrowArray) {
    unsafe { (*array).release = None };
}

extern "C" fn release_schema(schema: *mut FFI_ArrowSchema) {
    unsafe { (*schema).release = None };
}

/// Memory that lasts until the process ends an input: it is leaked into a list that is freed at its end.
#[derive(Default)]
struct Arena {
    bytes: Vec<Vec<u64>>,
    pointers: Vec<Box<[*const c_void]>>,
    texts: Vec<CString>,
    arrays: Vec<Box<FFI_ArrowArray>>,
    schemas: Vec<Box<FFI_ArrowSchema>>,
}

impl Arena {
    fn make(&mut self, levels: &[Level]) -> Option<Made> {
        let (level, rest) = levels.split_first()?;
        let format = FORMATS[usize::from(level.format) % FORMATS.len()];
        let nested = format.starts_with('+');
        let child = if nested { self.make(rest) } else { None };
        let length = level.huge.unwrap_or(i64::from(level.length) % 64);
        let offset = i64::from(level.offset);
        // What the interface promises: room for so many values, or offsets, of any width.
        let places =
            usize::try_from(length).unwrap_or(0).min(1 << 12) + usize::try_from(offset).unwrap_or(0) + 2;
        if level.huge.is_some_and(|huge| (1 << 12..=i64::MAX / 64).contains(&huge)) {
            return None; // a lie about a buffer, which nothing can see through
        }
        let mut values = vec![0_u64; places * WIDEST / 8 + 1];
        let bytes = bytemuck_of(&mut values);
        let mut end = 0_i64;
        for place in 0..places {
            end += i64::from(level.offsets.get(place).copied().unwrap_or(1)) % 4;
            match format {
                "+l" | "u" => bytes[place * 4..place * 4 + 4].copy_from_slice(&(end as i32).to_ne_bytes()),
                "+L" | "U" => bytes[place * 8..place * 8 + 8].copy_from_slice(&end.to_ne_bytes()),
                _ => bytes[place] = place as u8,
            }
        }
        let mask = vec![u64::MAX; places / 64 + 2];
        // Texts, which are no UTF-8 now and then: each has up to three bytes.
        let texts =
            vec![if level.nulls % 5 == 4 { u64::MAX } else { u64::from_ne_bytes(*b"abcdefgh") }; places];
        self.bytes.extend([texts, values, mask]);
        let count = self.bytes.len();
        let pointer =
            |missing: bool, at: usize| if missing { ptr::null() } else { self.bytes[at].as_ptr().cast() };
        let buffers = [
            pointer(level.missing[0], count - 1),
            pointer(level.missing[1], count - 2),
            pointer(level.missing[2], count - 3),
        ];
        self.pointers.push(buffers.into());
        let own = match format {
            "u" | "U" => 3,
            _ if format.starts_with("+w") => 1,
            _ => 2,
        };
        let n_buffers = level.buffers.map_or(own, |count| i64::from(count % 4));
        let n_children = level.children.map_or(i64::from(nested), |count| i64::from(count % 3));
        let one = |there: Option<*const c_void>| there.unwrap_or(ptr::null());
        let arrays: [*const c_void; 3] =
            [one(child.as_ref().map(|child| child.array.cast_const().cast())), ptr::null(), ptr::null()];
        let schemas: [*const c_void; 3] =
            [one(child.as_ref().map(|child| child.schema.cast_const().cast())), ptr::null(), ptr::null()];
        self.pointers.extend([Box::from(arrays), Box::from(schemas)]);
        let pointers = self.pointers.len();
        self.texts.push(CString::new(format).expect("a text"));
        let mut array = Box::new(FFI_ArrowArray::empty());
        (array.length, array.offset, array.null_count) = (length, offset, i64::from(level.nulls % 3));
        (array.n_buffers, array.n_children) = (n_buffers, n_children);
        array.buffers = self.pointers[pointers - 3].as_ptr().cast_mut().cast();
        array.children = if level.missing[2] {
            ptr::null_mut()
        } else {
            self.pointers[pointers - 2].as_ptr().cast_mut().cast()
        };
        array.release = (!level.released).then_some(release_array);
        let mut schema = Box::new(FFI_ArrowSchema::empty());
        schema.format = self.texts.last().map_or(ptr::null(), |text| text.as_ptr().cast::<c_char>());
        schema.n_children = if nested { 1 } else { 0 };
        schema.children = self.pointers[pointers - 1].as_ptr().cast_mut().cast();
        schema.release = Some(release_schema);
        if level.dictionary {
            schema.dictionary = (&raw mut *schema).cast();
        }
        let made = Made { array: &raw mut *array, schema: &raw mut *schema };
        self.arrays.push(array);
        self.schemas.push(schema);
        Some(made)
    }
}

fn bytemuck_of(values: &mut [u64]) -> &mut [u8] {
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

fuzz_target!(|levels: Vec<Level>| {
    let mut arena = Arena::default();
    let Some(made) = arena.make(&levels) else { return };
    let data_type = arrow_structs::type_of(unsafe { &*made.schema });
    if let Ok(data_type) = &data_type {
        let array = unsafe { FFI_ArrowArray::from_raw(made.array) };
        let expected = array.length;
        let found = arrow_structs::import(array, data_type);
        if let Ok(found) = &found
            && arrow_structs::is_text(data_type)
        {
            let texts: Vec<Option<&str>> = match data_type {
                DataType::Utf8 => found.as_string::<i32>().iter().collect(),
                _ => found.as_string::<i64>().iter().collect(),
            };
            assert_eq!(texts.len() as i64, expected);
            assert!(
                texts.iter().flatten().all(|text| text.bytes().all(|byte| (b'a'..=b'h').contains(&byte)))
            );
        }
        if let Ok(found) = found
            && let Ok((values, offsets)) = arrow_lists("x", &[found])
        {
            assert_eq!(offsets.len() as i64, expected + 1);
            let sequences = Sequences::new("x", values, &offsets).expect("offsets that were checked");
            let Ok(dataset) = SequenceDataset::new().variable("x", sequences).build() else { return };
            let loader = Loader::builder(dataset).batch_size(3).num_threads(1);
            let Ok(loader) = loader.build() else { return };
            for batch in loader.iter() {
                batch.expect("a batch").fields().iter().for_each(|field| drop(field.to_bytes()));
            }
        }
    }
    // Structs that were left are not released by anything.
    arena.schemas.iter_mut().for_each(|schema| schema.release = None);
    arena.arrays.iter_mut().for_each(|array| array.release = None);
});
