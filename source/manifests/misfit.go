package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// misfit says in words which field of a text has a value that the type of into does
// not take. What decoded it said so in err, in terms of Go; the standard library tells
// it in parts.
func misfit(err error, text []byte, into any) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(json.Unmarshal(text, into), &wrong) {
		return err
	}
	is := map[string]string{"object": "a group of fields", "array": "a list", "string": "text", "bool": "true or false", "number": "a number"}[wrong.Value]
	if is == "" {
		is = "the " + wrong.Value // and how much, as it does not fit
	}
	if wrong.Field == "" {
		return fmt.Errorf("is %s, must be %s", is, wanted(wrong.Type))
	}
	return fmt.Errorf("%s: is %s, must be %s", wrong.Field, is, wanted(wrong.Type))
}

// wanted says in YAML's words what a field holds.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a group of fields"
	case reflect.Int32:
		return "a whole number of 32 bits"
	}
	return "a number"
}
