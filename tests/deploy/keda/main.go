// Command keda reads manifests from standard input and polls the triggers of each ScaledObject once with KEDA's own
// scalers. It prints one line of JSON for each ScaledObject.
//
// Only what KEDA's operator does with a Kubernetes API is done here: finding the Secrets and starting the right scaler.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/events"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"sigs.k8s.io/controller-runtime/pkg/log"
	strict "sigs.k8s.io/yaml"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"github.com/kedacore/keda/v2/pkg/scalers"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
	"github.com/kedacore/keda/v2/pkg/scaling/cache"
	"github.com/kedacore/keda/v2/pkg/scaling/modifiers"
)

// The timeout of KEDA's operator if nothing else is configured.
const httpTimeout = 3 * time.Second

type manifests struct {
	secrets         map[string]corev1.Secret
	authentications map[string]kedav1alpha1.TriggerAuthentication
	scaledObjects   []kedav1alpha1.ScaledObject
}

type trigger struct {
	Name   string   `json:"name"`
	Value  *float64 `json:"value"`
	Active bool     `json:"active"`
	Target string   `json:"target"`
	Error  string   `json:"error"`
}

type result struct {
	Name     string    `json:"name"`
	Triggers []trigger `json:"triggers"`
	// With scaling modifiers: the value of the formula, by which KEDA scales.
	Value  *float64 `json:"value"`
	Active bool     `json:"active"`
}

func main() {
	log.SetLogger(logr.Discard())
	given, err := read(os.Stdin)
	if err == nil {
		err = pollAll(given)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// read decodes the manifests. A field that KEDA does not have is an error.
func read(input io.Reader) (*manifests, error) {
	found := &manifests{
		secrets:         map[string]corev1.Secret{},
		authentications: map[string]kedav1alpha1.TriggerAuthentication{},
	}
	decoder := yaml.NewYAMLToJSONDecoder(input)
	for {
		var document json.RawMessage
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		if err := found.add(document); err != nil {
			return nil, err
		}
	}
}

func (m *manifests) add(document []byte) error {
	var head struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(document, &head); err != nil {
		return err
	}
	switch head.Kind {
	case "Secret":
		var one corev1.Secret
		if err := strict.UnmarshalStrict(document, &one); err != nil {
			return err
		}
		m.secrets[one.Name] = one
	case "TriggerAuthentication":
		var one kedav1alpha1.TriggerAuthentication
		if err := strict.UnmarshalStrict(document, &one); err != nil {
			return err
		}
		m.authentications[one.Name] = one
	case "ScaledObject":
		var one kedav1alpha1.ScaledObject
		if err := strict.UnmarshalStrict(document, &one); err != nil {
			return err
		}
		m.scaledObjects = append(m.scaledObjects, one)
	}
	return nil
}

// parameters returns what a TriggerAuthentication takes from Secrets.
func (m *manifests) parameters(reference *kedav1alpha1.AuthenticationRef) (map[string]string, error) {
	parameters := map[string]string{}
	if reference == nil {
		return parameters, nil
	}
	authentication, ok := m.authentications[reference.Name]
	if !ok {
		return nil, fmt.Errorf("there is no TriggerAuthentication %s", reference.Name)
	}
	for _, target := range authentication.Spec.SecretTargetRef {
		value, ok := m.secrets[target.Name].Data[target.Key]
		if !ok {
			return nil, fmt.Errorf("there is no Secret %s with the key %s", target.Name, target.Key)
		}
		parameters[target.Parameter] = string(value)
	}
	return parameters, nil
}

func pollAll(given *manifests) error {
	output := json.NewEncoder(os.Stdout)
	for i := range given.scaledObjects {
		polled, err := poll(given, &given.scaledObjects[i])
		if err != nil {
			return fmt.Errorf("%s: %w", given.scaledObjects[i].Name, err)
		}
		if err := output.Encode(polled); err != nil {
			return err
		}
	}
	return nil
}

func poll(given *manifests, object *kedav1alpha1.ScaledObject) (*result, error) {
	polled := &result{Name: object.Name}
	var metrics []external_metrics.ExternalMetricValue
	names := map[string]string{}
	failed := false
	for index, one := range object.Spec.Triggers {
		parameters, err := given.parameters(one.AuthenticationRef)
		if err != nil {
			return nil, err
		}
		scaler, err := build(object, index, parameters)
		if err != nil {
			return nil, err
		}
		shown, values := pollTrigger(scaler, one.Name)
		polled.Triggers = append(polled.Triggers, shown)
		polled.Active = polled.Active || shown.Active
		failed = failed || shown.Error != ""
		metrics = append(metrics, values...)
		for _, value := range values {
			pair, err := modifiers.GetPairTriggerAndMetric(object, value.MetricName, one.Name)
			if err != nil {
				return nil, err
			}
			maps.Copy(names, pair)
		}
	}
	if !object.IsUsingModifiers() {
		return polled, nil
	}
	formula, err := kedav1alpha1.ValidateAndCompileScalingModifiers(object)
	if err != nil {
		return nil, err
	}
	polled.Active = false
	if failed {
		return polled, nil
	}
	compiled := &cache.ScalersCache{CompiledFormula: formula}
	for _, value := range modifiers.HandleScalingModifiers(object, metrics, names, false, nil, compiled, logr.Discard()) {
		number := value.Value.AsApproximateFloat64()
		polled.Value = &number
	}
	return polled, activate(polled, object.Spec.Advanced.ScalingModifiers.ActivationTarget)
}

// activate compares the value of the formula with the activation target, as KEDA's scale handler does.
func activate(polled *result, target string) error {
	threshold := 0.0
	if target != "" {
		var err error
		if threshold, err = strconv.ParseFloat(target, 64); err != nil {
			return err
		}
	}
	polled.Active = polled.Value != nil && *polled.Value > threshold
	return nil
}

// build starts the scaler of a trigger. A parameter that the scaler does not know is an error.
func build(object *kedav1alpha1.ScaledObject, index int, parameters map[string]string) (scalers.Scaler, error) {
	one := object.Spec.Triggers[index]
	recorder := events.NewFakeRecorder(len(one.Metadata) + 1)
	config := &scalersconfig.ScalerConfig{
		ScalableObjectName:      object.Name,
		ScalableObjectNamespace: object.Namespace,
		ScalableObjectType:      object.Kind,
		GlobalHTTPTimeout:       httpTimeout,
		TriggerName:             one.Name,
		TriggerType:             one.Type,
		TriggerMetadata:         one.Metadata,
		AuthParams:              parameters,
		TriggerIndex:            index,
		MetricType:              one.MetricType,
		AsMetricSource:          object.IsUsingModifiers(),
		Recorder:                recorder,
		ScaledObject:            object,
	}
	var scaler scalers.Scaler
	var err error
	switch one.Type {
	case "metrics-api":
		scaler, err = scalers.NewMetricsAPIScaler(config, nil)
	case "prometheus":
		scaler, err = scalers.NewPrometheusScaler(config)
	default:
		return nil, fmt.Errorf("this program was built without the scaler %s", one.Type)
	}
	if err != nil {
		return nil, err
	}
	select {
	case event := <-recorder.Events:
		return nil, errors.New(event)
	default:
		return scaler, nil
	}
}

func pollTrigger(scaler scalers.Scaler, name string) (trigger, []external_metrics.ExternalMetricValue) {
	ctx := context.Background()
	defer scaler.Close(ctx)
	shown := trigger{Name: name}
	spec := scaler.GetMetricSpecForScaling(ctx)[0].External
	if spec.Target.AverageValue != nil {
		shown.Target = spec.Target.AverageValue.String()
	} else {
		shown.Target = spec.Target.Value.String()
	}
	values, active, err := scaler.GetMetricsAndActivity(ctx, spec.Metric.Name)
	if err != nil {
		shown.Error = err.Error()
		return shown, nil
	}
	number := values[0].Value.AsApproximateFloat64()
	shown.Value, shown.Active = &number, active
	return shown, values
}
