package main

import (
	"bytes"
	"fmt"
	"image/color"
	"maps"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"portolan/bench/figures"
)

// A chart is a row against the number of Services with ten endpoints each, a line
// for each product and mode, on logarithmic axes: there, a straight line is a power
// of the size, and as far apart is as many times as much.
type chart struct {
	file, title, unit string
	row               figures.Row
}

var plots = []chart{
	{"first-sync.svg", "First full sync", "seconds", figures.FirstSync},
	{"change.svg", "EndpointSlice change to traffic, spaced", "milliseconds", figures.Spaced},
	{"change-cpu.svg", "CPU of a change, process and children", "milliseconds", figures.ChangeCPU},
	{"memory.svg", "Peak memory of the process", "MiB", figures.OwnMemory},
	{"connect.svg", "Connect to the last Service, median", "microseconds", figures.Connect(figures.ConnectMedian, figures.Last)},
}

var colors = map[figures.Mode]color.RGBA{
	figures.Nftables:   {0x1b, 0x6c, 0xa8, 0xff},
	figures.Legacy:     {0xc0, 0x39, 0x2b, 0xff},
	figures.NFT:        {0xd6, 0x8a, 0x10, 0xff},
	figures.Compact:    {0x2e, 0x8b, 0x57, 0xff},
	figures.CompactNFT: {0x7d, 0x3c, 0x98, 0xff},
}

func (c chart) draw(runs []figures.Run) ([]byte, error) {
	p := plot.New()
	p.Title.Text = c.title
	p.X.Label.Text, p.Y.Label.Text = "Services, 10 endpoints each", c.unit
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Left, p.Legend.Top = true, true
	p.Legend.TextStyle.Font.Size = vg.Points(8)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe4}, color.Gray{0xe4}
	p.Add(grid)
	highest := 0.0
	for _, mode := range figures.Modes {
		for _, product := range []figures.Product{figures.KubeProxy, figures.Portolan} {
			points := growing(runs, product, mode, c.row)
			if len(points) == 0 {
				continue
			}
			line, marks, err := plotter.NewLinePoints(xy(points))
			if err != nil {
				return nil, fmt.Errorf("report: %s: %w", c.file, err)
			}
			line.Color, marks.Color, marks.Radius = colors[mode], colors[mode], vg.Points(2.5)
			marks.Shape = draw.CircleGlyph{}
			if product == figures.KubeProxy {
				line.Dashes, marks.Shape = []vg.Length{vg.Points(4), vg.Points(3)}, draw.RingGlyph{}
			}
			p.Add(line, marks)
			p.Legend.Add(fmt.Sprintf("%s, %s", names[product], mode), line, marks)
			for _, at := range points {
				highest = max(highest, at.Cost)
			}
		}
	}
	if highest == 0 {
		return nil, fmt.Errorf("report: %s: nothing to draw", c.file)
	}
	p.Y.Max = 20 * highest // room for the legend
	canvas := vgsvg.New(16*vg.Centimeter, 10*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}

// growing are the medians of a row by the number of Services with ten endpoints
// each.
func growing(runs []figures.Run, p figures.Product, m figures.Mode, row figures.Row) (out []figures.Point) {
	sizes := map[figures.Workload]bool{}
	for _, r := range runs {
		if r.Workload.Endpoints == 10 && r.Product == p && r.Mode == m {
			sizes[r.Workload] = true
		}
	}
	bySize := func(a, b figures.Workload) int { return a.Services - b.Services }
	for _, w := range slices.SortedFunc(maps.Keys(sizes), bySize) {
		if median := figures.Collect(runs, w, p, m, row).Median(); median > 0 { // not of none, either
			out = append(out, figures.Point{Size: float64(w.Services), Cost: median})
		}
	}
	return out
}

func xy(points []figures.Point) plotter.XYs {
	out := make(plotter.XYs, len(points))
	for i, p := range points {
		out[i] = plotter.XY{X: p.Size, Y: p.Cost}
	}
	return out
}
