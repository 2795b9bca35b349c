// google.protobuf.Struct, which proto-loader gives as its fields, and JSON values.
"use strict";

const KINDS = { number: "numberValue", string: "stringValue", boolean: "boolValue" };

function fromStruct(struct) {
  const fields = Object.entries(struct?.fields ?? {});
  return Object.fromEntries(fields.map(([key, value]) => [key, fromValue(value)]));
}

function fromValue(value) {
  switch (value.kind) {
    case "structValue":
      return fromStruct(value.structValue);
    case "listValue":
      return value.listValue.values.map(fromValue);
    case "nullValue":
      return null;
    default:
      return value[value.kind];
  }
}

function toStruct(values) {
  const fields = Object.entries(values).map(([key, value]) => [key, toValue(value)]);
  return { fields: Object.fromEntries(fields) };
}

function toValue(value) {
  if (value === null || value === undefined) return { nullValue: "NULL_VALUE" };
  if (Array.isArray(value)) return { listValue: { values: value.map(toValue) } };
  if (typeof value === "object") return { structValue: toStruct(value) };
  return { [KINDS[typeof value]]: value };
}

module.exports = { fromStruct, toStruct };
